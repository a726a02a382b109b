"""The dashboard of users and accounts."""

from __future__ import annotations

from slurm.monitor.dashboards.promql import HERE, lines, of, rate, total
from slurm.monitor.grafana import Dashboard, Panel, Query


def _who(label: str) -> tuple[Panel, ...]:
    title = label.capitalize()
    panels = []
    for state, words in (("running", "in use"), ("pending", "asked for by what waits")):
        for what, unit in (("cpus", "CPUs"), ("gpus", "GPUs")):
            series = of(f"{label}_{what}", f'{HERE},state="{state}"')
            panels.append(
                lines(
                    f"{title}s: {unit} {words}",
                    Query(f"topk(10, {total(series, label)})", f"{{{{{label}}}}}"),
                    stacked=state == "running",
                )
            )
    panels.append(
        Panel(
            f"{title}s: jobs now",
            "table",
            (Query(f"sort_desc({total(of(f'{label}_jobs'), f'{label}, state')})"),),
        )
    )
    return tuple(panels)


USERS = Dashboard(
    "slurm-users",
    "Slurm / Users and accounts",
    (
        *_who("user"),
        lines(
            "Users: requests to the controller",
            Query(f"topk(10, {rate(of('scheduler_user_rpc'), 'user')})", "{{user}}"),
            unit="reqps",
        ),
        *_who("account"),
        Panel(
            "Accounts: part of all use",
            "bargauge",
            (Query(f"topk(20, {total(of('fairshare_used_ratio'), 'account')})", "{{account}}"),),
            unit="percentunit",
        ),
        Panel(
            "Fair share",
            "table",
            (Query(f"sort({of('fairshare_factor')})"),),
            width=24,
            about="From 0, used far more than the share, to 1, used little: it raises priority.",
        ),
    ),
)
