"""Order-preserving maps of every kind on few points."""

from __future__ import annotations

from opboost.privacy.adj_map import AdjMap, OrderPreservingMap
from opboost.privacy.domain import IntegerDomain, Partition
from opboost.privacy.laws import Law
from opboost.privacy.order_preserving import GlobalMap, LocalMap


def mechanisms(n: int, law: Law, epsilon: float) -> list[OrderPreservingMap]:
    domain = IntegerDomain(3, n + 2)
    uneven = Partition(domain, (3, 4, 7)) if n > 6 else Partition(domain, (3, 4))
    return [
        GlobalMap(epsilon=epsilon, domain=domain, law=law),
        LocalMap(epsilon=epsilon, domain=domain, law=law, theta=min(4, n)),
        LocalMap(epsilon=epsilon, domain=domain, law=law, partition=uneven),
        AdjMap(epsilon=epsilon, domain=domain, law=law, theta=min(4, n), alpha=2),
        AdjMap(epsilon=epsilon, domain=domain, law=law, partition=uneven),
    ]
