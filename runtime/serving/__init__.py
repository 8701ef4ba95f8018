"""`tsm-serve`: a server of long-lived streams over models in .tsm files. Needs the extra [serve]."""
