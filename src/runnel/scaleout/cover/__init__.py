"""The router's conditions: the roots of a plan in, as few conditions that cover them as possible out."""
