"""Tree patterns in the language: `tree //news[//company = 'ACME'][/author!val]//headline!cont`.

In: the tokens of a script. Out: `TreePattern`, or an error with its span and a hint.
"""
