#!/usr/bin/env bash
# The step `preview` of action.yml. The files of the reports, and the result, are outputs of the step.
set -euo pipefail

fail() {
  echo "::error::$1"
  exit 2
}

# Sets the array $1 to the lines of $2 that are not empty. A path is one argument, whatever is in it.
lines() {
  local -n found=$1
  local line
  found=()
  while IFS= read -r line; do
    if [[ -n $line ]]; then found+=("$line"); fi
  done <<<"$2"
}

lines paths "$PATHS"
lines config "$CONFIG"
lines arguments "$ARGUMENTS"
if [[ -n $KUBERNETES ]]; then arguments+=("--kubernetes=$KUBERNETES"); fi
((${#paths[@]})) || fail "paths: found nothing, expected files or folders with manifests, one a line"
((${#config[@]})) || fail "config: found nothing, expected the gateway's configuration, one path a line"

cd "$GITHUB_WORKSPACE"
reports=$(mktemp -d "$RUNNER_TEMP/admission-preview.XXXXXX")
command=(admission-gateway)
if [[ -n $IMAGE ]]; then
  command=(docker run --rm --user "$(id -u):$(id -g)" --read-only --tmpfs /tmp
    --volume "$GITHUB_WORKSPACE:$GITHUB_WORKSPACE:ro" --volume "$reports:$reports"
    --workdir "$GITHUB_WORKSPACE" "$IMAGE")
fi

# Messages of policies are in the output. The runner takes no commands from it.
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$token"
status=0
"${command[@]}" preview --config "${config[@]}" --sarif "$reports/preview.sarif" \
  --junit "$reports/preview.xml" --markdown "$reports/preview.md" \
  ${arguments[@]+"${arguments[@]}"} -- "${paths[@]}" || status=$?
echo "::$token::"

# A program that starts containers may end with such a status itself.
[[ -s $reports/preview.md ]] || fail "the command ended with the status $status and wrote no report, see the log above"
case $status in
  0) result=allowed ;;
  1) result=denied ;;
  3) result=undecided ;;
  *) fail "the command ended with the status $status, see the log above" ;;
esac
{
  echo "result=$result"
  echo "sarif=$reports/preview.sarif"
  echo "junit=$reports/preview.xml"
  echo "markdown=$reports/preview.md"
} >>"$GITHUB_OUTPUT"
cat "$reports/preview.md" >>"$GITHUB_STEP_SUMMARY"
