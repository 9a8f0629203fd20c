"""A budget ends by the highest prices of any source, and every command counts it so."""

from orchestrator.domain.text.amounts import usd_range_text


def test_status_and_explain_judge_a_budget_as_the_watch_does(cloud, user):
    """Between the lower and the upper price it is used up already: nothing is printed that says the job goes on."""
    user.up()
    cloud.wait(1800)
    before = user.run("status", "--fresh", "--json").document
    assert before["usd"] < before["upper_usd"]
    assert before["outcome"] is None
    between = (before["usd"] + before["upper_usd"]) / 2

    user.edit(watch__budget_usd=between)
    body = user.run("status", "--fresh", "--json").document
    assert body["outcome"] == "limit-reached"
    sums = usd_range_text(body["usd"], body["upper_usd"])
    for command in (["status", "--fresh"], ["explain"], ["cost"]):
        said = " ".join(user.run(*command).out.split())
        assert f"about {sums}" in said, command
    assert "budget or ttl used up" in said
    user.write("train.py", "print('other step')\n")
    refused = user.run("push")
    assert (refused.code, "raise watch.budget_usd" in refused.err) == (2, True)
