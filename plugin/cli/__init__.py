"""The commands, one file each. Importing this package loads neither torch nor any other extra."""
