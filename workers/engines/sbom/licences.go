package main

import "strings"

// known has, for the SPDX identifier of a licence, what its text has, and no other one here.
var known = []struct {
	id    string
	parts []string
}{
	{"Apache-2.0", []string{"apache license version 2.0"}},
	{"Apache-2.0", []string{"licensed under the apache license, version 2.0"}},
	{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"redistribution and use in source and binary forms"}},
	{"CC0-1.0", []string{"cc0 1.0 universal"}},
	{"ISC", []string{"permission to use, copy, modify, and/or distribute this software for any purpose"}},
	{"ISC", []string{"permission to use, copy, modify, and distribute this software for any purpose"}},
	{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy"}},
	{"MPL-2.0", []string{"mozilla public license", "2.0"}},
	{"Unlicense", []string{"this is free and unencumbered software released into the public domain"}},
}

// identify returns the SPDX identifiers of the licences in text, each once. The text of BSD-2-Clause is a part of that of
// BSD-3-Clause.
func identify(text string) []string {
	plain := strings.ReplaceAll(strings.Join(strings.Fields(strings.ToLower(text)), " "), "license, version", "license version")
	var found []string
	has := map[string]bool{}
	for _, each := range known {
		matches := !has[each.id] && !(each.id == "BSD-2-Clause" && has["BSD-3-Clause"])
		for _, part := range each.parts {
			matches = matches && strings.Contains(plain, part)
		}
		if matches {
			has[each.id] = true
			found = append(found, each.id)
		}
	}
	return found
}
