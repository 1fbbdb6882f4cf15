"""The lower bound [kwon2021, Thm. 3.1] watched: episodes needed against A^M."""
