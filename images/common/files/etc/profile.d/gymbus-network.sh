# The way to the hosts that a job may reach, where it asked for some.
if [ -r /run/gymbus/environment ]; then
  set -a
  . /run/gymbus/environment
  set +a
fi
