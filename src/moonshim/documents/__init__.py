"""Documents that models cannot read -> what they can read, extracted in a process that cannot do any harm."""

from moonshim.documents.reader import DocumentReader, can_read_pdf

__all__ = ["DocumentReader", "can_read_pdf"]
