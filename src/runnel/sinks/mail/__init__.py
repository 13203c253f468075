"""The mail sink: renders a message as a digest, composes the mail and sends it to the mail server."""
