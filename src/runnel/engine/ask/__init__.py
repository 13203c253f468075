"""Questions about a workspace: show, explain, why, status, usage. Nothing here changes anything."""
