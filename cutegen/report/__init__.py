"""What was measured, for people: tables, charts and pages of a result, and two results compared."""
