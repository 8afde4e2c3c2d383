# What `up` and `down` both know: where a server's folder is, and whether the process of its pid file is that server.

default_cache() { echo "${SAPWOOD_NEO4J_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/sapwood/neo4j}"; }

# Tells whether the pid file of folder $1 names a living server of that very folder; a pid is used again by others.
is_ours() {
  [ -s "$1/pid" ] || return 1
  case "$(command_of "$(cat "$1/pid")")" in
    *Neo4jServer*" $1 "*) return 0 ;;
    *) return 1 ;;
  esac
}

command_of() {
  if [ -d /proc/self ]; then
    tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" || true
  else
    ps -ww -o args= -p "$1" || true
  fi
}
