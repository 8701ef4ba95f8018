"""What every level may use: durable files, bounded reads, random numbers, formatting, the style of figures."""
