# SPDX-License-Identifier: Apache-2.0
# Completion for bash; for zsh after `autoload -U bashcompinit && bashcompinit`. It asks the program what there is, so
# it is never out of date. Installed as share/bash-completion/completions/vramscope; by hand: source this file.
_vramscope() {
  local program=${COMP_WORDS[0]} command="" word i
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -- ]]; then # what follows is the command that is recorded
      COMPREPLY=($(compgen -c -f -- "$current"))
      return
    fi
    [[ -z $command && $word != -* ]] && command=$word
  done
  if [[ -z $command ]]; then
    COMPREPLY=($(compgen -W "--help --version --include-dir $("$program" --help 2>/dev/null |
      sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')" -- "$current"))
    return
  fi
  case $before in
    --kind) COMPREPLY=($(compgen -W "timeline compare two-bar categories" -- "$current")) ;;
    --at) COMPREPLY=($(compgen -W "peak end iter: mark:" -- "$current")) ;;
    list | show | keywords)
      if [[ $command == keywords ]]; then
        [[ $before == keywords ]] && COMPREPLY=($(compgen -W "list show" -- "$current"))
        [[ $before == show ]] && COMPREPLY=($(compgen -W "$("$program" keywords list 2>/dev/null)" -- "$current"))
        return
      fi
      ;;&
    *)
      if [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$("$program" "$command" --help 2>/dev/null |
          grep -oE '(^|[ ,])--?[a-zA-Z][a-z-]*' | tr -d ' ,' | sort -u)" -- "$current"))
      else
        COMPREPLY=($(compgen -f -- "$current"))
      fi
      ;;
  esac
}
complete -o filenames -F _vramscope vramscope
