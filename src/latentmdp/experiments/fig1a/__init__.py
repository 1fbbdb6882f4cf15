"""Figure 1a [kwon2021]: contexts revealed, or inferred from a poor or a good start."""
