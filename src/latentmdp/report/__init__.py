"""Pictures and pages about models, policies and runs."""
