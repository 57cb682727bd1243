"""Models: small state machines of the protocols, whose every order of steps is tried.

`explorer` tries them, one file each describes a model, and `bugs` lists the faults that the models must notice. A model
calls the rules of the product where they are functions, and only adds what lies between their calls: messages, crashes,
and the order of steps.
"""
