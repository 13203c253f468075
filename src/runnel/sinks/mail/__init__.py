"""The mail sink: a message as a digest, rendered, composed and handed to the mail server."""
