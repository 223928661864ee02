#!/bin/sh
# Makes an environment of its own for each peer of the benchmarks: make_env.sh [flower|pfl|fedjax ...]
# They go into $PLURES_BENCH (default ~/.cache/plures-bench), outside the tree; PYTHON names the interpreter (3.11).
# Torch is pinned: unpinned, pip fetches gigabytes of CUDA.
set -eu

place=${PLURES_BENCH:-$HOME/.cache/plures-bench}
python=${PYTHON:-python3}
torch=torch==2.13.0

packages_of() {
    case $1 in
        # 1.42.0 asks for certifi>=2026.10.19, which package indexes did not have when this was written.
        flower) echo "$torch flwr[simulation]==1.41.0" ;;
        pfl) echo "$torch pfl[pytorch]==0.6.0" ;;
        # From 0.6 on jax has no jax.tree_map, which this fedjax, the newest, calls.
        fedjax) echo "jax==0.5.3 jaxlib==0.5.3 dm-haiku==0.0.17 optax==0.2.8 fedjax==0.0.17" ;;
        *) return 1 ;;
    esac
}

for peer in ${*:-flower pfl fedjax}; do
    packages=$(packages_of "$peer") || { echo "There is no peer '$peer': flower, pfl or fedjax." >&2; exit 2; }
    home=$place/$peer
    test -x "$home/bin/python" || "$python" -m venv "$home"
    # shellcheck disable=SC2086 # several words
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check $packages
    "$home/bin/python" -m pip freeze > "$home/packages.txt"
    echo "$peer: $home"
done
