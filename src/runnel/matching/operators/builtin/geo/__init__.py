"""Built-in operators about positions on Earth: distances and regions."""
