"""The router's conditions: find the roots of a plan, and few conditions that cover them."""
