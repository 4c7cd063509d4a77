"""`cutegen tune`: candidates compiled, checked and timed beside the default; what wins goes into the lock."""
