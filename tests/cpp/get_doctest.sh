#!/bin/sh
# Gets doctest, which the C++ tests need: as root from the package manager; otherwise its Debian or Ubuntu package is
# unpacked into the folder $1, with package lists of this script's own. Where neither works, the tests are left out.
set -u
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quick='-o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10'

install() {
	[ "$(id -u)" -eq 0 ] && apt-get -qq $quick update && apt-get -qq $quick install -y --no-install-recommends doctest-dev
}

unpack() {
	mkdir -p "$work/lists/partial" "$work/archives/partial"
	own="-o Dir::State::Lists=$work/lists -o Dir::Cache=$work -o Debug::NoLocking=1 $quick"
	cd "$work" && apt-get -qq $own update && apt-get -qq $own download doctest-dev \
		&& mkdir -p "$prefix" && dpkg-deb -x doctest-dev_*.deb "$prefix"
}

echo "[setup] doctest: $([ "$(id -u)" -eq 0 ] && echo apt-get install doctest-dev || echo "doctest-dev, unpacked into $prefix")"
if ! { install || unpack; } >"$work/log" 2>&1; then
	echo "[setup] no doctest: $(grep -m 1 -E '^(E|W|/|.*not found)' "$work/log" | cut -c1-160)"
fi
