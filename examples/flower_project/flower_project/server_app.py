"""What the SuperLink runs for `flwr run`."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from plures.deploy.flower.grid import OnGrid
from plures.deploy.serving import DEPLOYMENT, serve
from plures.recipes import load_experiment

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """A whole run; one that was begun in the folder goes on."""
    experiment = load_experiment(Path(__file__).with_name("experiment.toml"))
    out, keyed = Path(str(context.run_config["out"])), bool(context.run_config["keyed"])
    resume = (out / DEPLOYMENT).exists()
    result = serve(experiment, lambda: OnGrid(grid), out, keyed=keyed, resume=resume, tell=print)
    print(result)
