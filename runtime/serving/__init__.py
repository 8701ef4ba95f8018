"""`tsm-serve`: models of .tsm files as a server of long-lived streams. Needs the extra [serve]."""
