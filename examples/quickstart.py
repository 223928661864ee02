"""Ten lines: twenty clients with two digits each, a shared body, and a head of their own."""

import plures
from plures.local import epochs
from plures.methods import fedalt
from plures.parts import head

federation = plures.data.digits_federation(num_clients=20, classes_per_client=2)
method = fedalt(personal=head(), lr=0.1, budget=epochs(2, batch=10))
result = plures.run(method, federation, plures.models.mlp, rounds=20, cohort=10, seed=0)

print(result)
print(result.personal_model(client=7))
