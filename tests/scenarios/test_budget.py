"""A budget ends by the highest prices of any source, and every command counts it so."""


def test_status_and_explain_judge_a_budget_as_the_watch_does(cloud, user):
    """Between the lower and the upper price it is used up already: nothing is printed that says the job goes on."""
    user.up()
    cloud.wait(1800)
    before = user.run("status", "--fresh", "--json").document
    assert before["cost_usd"] < before["cost_most_usd"]
    assert before["outcome"] is None
    between = (before["cost_usd"] + before["cost_most_usd"]) / 2

    user.edit(watch__budget_usd=between)
    body = user.run("status", "--fresh", "--json").document
    assert body["outcome"] == "spent"
    assert f"by the highest prices {body['cost_most_usd']:.2f} of" in " ".join(
        user.run("status", "--fresh").out.split()
    )
    assert f"{body['cost_most_usd']:.2f} USD spent of" in user.run("explain").out
    user.write("train.py", "print('other step')\n")
    refused = user.run("push")
    assert (refused.code, "raise watch.budget_usd" in refused.err) == (2, True)
