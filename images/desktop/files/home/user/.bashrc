case $- in *i*) ;; *) return ;; esac
. /etc/profile.d/gymbus-network.sh
# No host name: it differs between replicas, and the pictures of equal episodes should not.
PS1='\[\e[1;32m\]user@desktop\[\e[0m\]:\[\e[1;36m\]\w\[\e[0m\]\$ '
HISTSIZE=1000
alias ls='ls --color=auto'
alias ll='ls -l'
# A terminal's cursor that blinks makes every picture a new one.
printf '\e[2 q'
