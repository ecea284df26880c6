"""When what is run by itself: each day, and after a change of the inputs."""

import dagster as dg

WHEN_INPUTS_CHANGE = (
    (
        (
            dg.AutomationCondition.missing()
            | dg.AutomationCondition.code_version_changed()
            | dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
        ).since_last_handled()
        & ~dg.AutomationCondition.any_deps_missing()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    )
    & dg.AutomationCondition.all_deps_blocking_checks_passed()
).with_label("what it is made from has changed")
"""Not `eager`, which fires whenever an input was made again, were it the same."""
