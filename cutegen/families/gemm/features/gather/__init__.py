"""Rows of the product that an index names: threads copy them into the ring, or a preceding launch to scratch."""
