"""Figure 1b [kwon2021]: EM and L-UCRL under different separation and horizon."""
