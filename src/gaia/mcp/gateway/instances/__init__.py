"""Which process of a server a request goes to, where clients have processes of their own."""
