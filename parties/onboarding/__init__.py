"""Onboarding: schemas, keys and run files drafted from a party's data file."""
