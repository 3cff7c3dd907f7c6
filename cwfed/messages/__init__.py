"""Messages for a person: texts shown harmlessly, values checked by name, shortages named.

Here lives what words a message or keeps it plain; no reading of files, no framework.
"""
