"""`cutegen tune`: candidates compiled, checked and timed beside the default; what wins goes into the lock."""

MAX_CANDIDATES = 60  # tried on a problem, where nobody says how many
