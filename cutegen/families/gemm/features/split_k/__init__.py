"""k of one output tile in parts, which CTAs of their own compute and which become one sum."""
