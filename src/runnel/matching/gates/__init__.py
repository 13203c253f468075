"""Gates: workers report claims, and the commit decides in the order of the item log which items pass."""
