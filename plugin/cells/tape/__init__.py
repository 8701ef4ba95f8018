"""A cell's formula as a list of operations: recorded, differentiated, inverted, hashed and printed as C++."""
