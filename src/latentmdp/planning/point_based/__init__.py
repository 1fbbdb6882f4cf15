"""Point-based bounds on V*, shared by PBVI and HSVI: bounds, faces of the simplex, expansion."""
