"""Jupyter and TensorBoard open to the world are refused in the deployment file, in all their spellings."""

import pytest

from orchestrator.config.config_error import ConfigError
from orchestrator.config.load import read
from orchestrator.config.rules.every_rule import run_rules
from orchestrator.domain.level import Level
from orchestrator.domain.source.exposed_services import SAFE, exposures
from tests.planning.planning_kit import a_spec

OPEN = """
jupyter notebook --ip=0.0.0.0 --NotebookApp.token='' --NotebookApp.password=''
jupyter lab --ip=0.0.0.0
jupyter lab --ip 0.0.0.0
jupyter-lab --ip '0.0.0.0'
jupyter lab --ip="0.0.0.0"
jupyter lab --ip=0
jupyter lab --ip=0.0
jupyter lab --ip=0x0
jupyter lab --ip=*
jupyter lab --ip='*'
jupyter lab --ip "*"
jupyter lab --ip=\\*
jupyter lab --ip=::
jupyter lab --ip='::'
jupyter lab --ip=[::]
jupyter lab --ip=::0
jupyter lab --ip=0:0:0:0:0:0:0:0
jupyter lab --ip=
jupyter lab --ip=''
jupyter lab --ip=10.0.0.3
jupyter lab --ip=$(hostname -i)
jupyter lab --ip="$MY_ADDRESS"
jupyter notebook --NotebookApp.ip=0.0.0.0
jupyter lab --ServerApp.ip='*'
nohup jupyter lab --no-browser --ServerApp.ip=:: &
cd /x && (jupyter lab --ip 0.0.0.0 > log 2>&1 &) && python3 train.py
bash -c "jupyter lab --ip='0.0.0.0'"
tmux new -d 'jupyter lab --ip=0.0.0.0'
python3 -m jupyterlab --ip=0.0.0.0
python3 -m notebook --ip=0.0.0.0
ipython notebook --ip=0.0.0.0
jupyter notebook --NotebookApp.token=
jupyter notebook --NotebookApp.token=''
jupyter notebook --NotebookApp.token=""
jupyter notebook "--NotebookApp.token="
jupyter notebook --NotebookApp.token ''
jupyter lab --ServerApp.token=
jupyter lab --ServerApp.token=''
jupyter lab --ServerApp.password=''
jupyter lab --IdentityProvider.token=''
jupyter lab --PasswordIdentityProvider.hashed_password=''
jupyter lab --LabApp.token=''
jupyter lab --token=
jupyter lab --token ''
jupyter lab --token=""
JUPYTER_TOKEN= jupyter lab
JUPYTER_TOKEN='' jupyter lab
export JUPYTER_TOKEN=""; jupyter lab
env JUPYTER_TOKEN= jupyter lab
jupyter lab --ServerApp.allow_remote_access=True
echo "c.ServerApp.ip = '0.0.0.0'" >> ~/.jupyter/jupyter_server_config.py
echo "c.NotebookApp.token = ''" >> ~/.jupyter/jupyter_notebook_config.py
echo "c.NotebookApp.ip = '*'" > c.py; jupyter notebook --config=c.py
ARGS="--ip=0.0.0.0"; jupyter lab $ARGS
pip install jupyterlab && jupyter lab --ip=0.0.0.0
tensorboard --logdir gs://b/x --bind_all
tensorboard --bind_all --logdir x &
tensorboard --logdir x --bind-all
tensorboard --logdir x --bind
tensorboard --logdir x --host 0.0.0.0
tensorboard --logdir x --host=0.0.0.0
tensorboard --logdir x --host '::'
tensorboard --logdir x --hos 0.0.0.0
tensorboard --logdir x --host $HOSTNAME
python3 -m tensorboard.main --logdir x --bind_all
/opt/venv/bin/tensorboard --logdir x --host 0.0.0.0 & python3 train.py
""".strip().splitlines()

SAFE_FORMS = """
jupyter lab
jupyter lab --no-browser --ip=127.0.0.1
jupyter lab --ip 'localhost' --port 9999
jupyter lab --ServerApp.ip=::1
JUPYTER_TOKEN=$(cat token) jupyter lab
jupyter lab --IdentityProvider.token="$TOKEN"
jupyter nbconvert --execute x.ipynb
pip install jupyter tensorboard && python3 serve.py --host 0.0.0.0
python3 train.py --ip 0.0.0.0 --token ''
python3 run_clm.py --report_to tensorboard --host 0.0.0.0
python3 train.py --logdir gs://b/tensorboard --host 0.0.0.0 --bind_all
tensorboard --logdir gs://b/x
tensorboard --logdir x --host 127.0.0.1 --port 6007
tensorboard --logdir x --host localhost; python3 serve.py --host 0.0.0.0
mkdir tensorboard && python3 train.py
""".strip().splitlines()


@pytest.mark.parametrize("text", OPEN)
@pytest.mark.parametrize("place", ["command", "setup"])
def test_an_open_service_is_refused(place, text):
    """The finding names the setting and shows what to write instead."""
    spec = a_spec(**{f"job__{place}": text})
    found = [p for p in run_rules(spec, _catalog()) if p.setting == f"job.{place}"]
    assert found
    assert all(p.level is Level.STOP and p.hint == SAFE for p in found)


@pytest.mark.parametrize("text", SAFE_FORMS)
def test_what_is_safe_or_something_else_is_let_through(text):
    """A refusal that hits the innocent would be switched off."""
    assert list(exposures(text)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JUPYTER_TOKEN", ""),
        ("JUPYTER_PASSWORD", ""),
        ("ARGS", "--ip=0.0.0.0"),
        ("ARGS", "--NotebookApp.token=''"),
    ],
)
def test_a_variable_opens_it_just_as_well(name, value):
    """What the command takes out of the environment counts as written there."""
    spec = a_spec(job__command="jupyter lab $ARGS", job__env={name: value})
    assert f"job.env.{name}" in {p.setting for p in run_rules(spec, _catalog()) if p.level is Level.STOP}


def test_the_finding_has_its_place_and_the_safe_form():
    """The file is refused before anything is asked of the cloud."""
    head = "name: x\ntpu: {type: v2-8, zones: [us-central1-b]}\njob:\n"
    text = head + '  command: "jupyter lab --ip=0.0.0.0 --token="\n'
    with pytest.raises(ConfigError) as caught:
        read(text.encode(), "tpuctl.yaml", environ={})
    finding = caught.value.findings[0]
    assert (finding.line, finding.setting) == (4, "job.command")
    assert "tpuctl tunnel" in finding.hint
    assert "127.0.0.1" in finding.hint


def _catalog():
    from orchestrator.config.shipped_catalog import load_catalog

    return load_catalog()
