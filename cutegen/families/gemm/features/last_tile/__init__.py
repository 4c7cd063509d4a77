"""The last tile of a CTA, whose epilogue may go through stages of A, which no k tile needs any more."""
