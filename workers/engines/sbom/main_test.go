package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

func TestALicenceIsFoundByItsText(t *testing.T) {
	const bsd2 = "Redistribution and use in source and binary forms, with or\nwithout modification, are permitted"
	for _, each := range []struct{ text, want string }{
		{"                 Apache License\n           Version 2.0, January 2004\n", "Apache-2.0"},
		{"Licensed under the Apache License,\nVersion 2.0 (the \"License\")", "Apache-2.0"},
		{bsd2, "BSD-2-Clause"},
		{bsd2 + "\nmay not be used to endorse or promote products", "BSD-3-Clause"},
		{"Permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"},
		{"Permission to use, copy, modify, and/or distribute this software for any purpose", "ISC"},
		{"Mozilla Public License, version 2.0", "MPL-2.0"},
		{"Apache License Version 2.0\n\n" + bsd2, "Apache-2.0 BSD-2-Clause"},
		{"All rights reserved.", ""},
	} {
		if got := strings.Join(identify(each.text), " "); got != each.want {
			t.Errorf("%q has %q; want %q", each.text, got, each.want)
		}
	}
}

func TestAModuleIsDescribedWithItsLicences(t *testing.T) {
	from, target := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"License.txt": "Permission is hereby granted, free of charge, to any person obtaining a copy",
		"NOTICE":      "Made by others.",
		"licenses.go": "package licenses",
	} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replaced := &debug.Module{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/b", Version: "v2.0.0+incompatible"}}
	found, err := describeModule(replaced, "9.8.7", from, target)
	if err != nil {
		t.Fatal(err)
	}
	if found.PURL != "pkg:golang/example.com/b@v2.0.0%2Bincompatible" || found.Name != "example.com/b" {
		t.Errorf("the module that replaces another one is %+v", found)
	}
	if len(found.Licenses) != 1 || found.Licenses[0].License.ID != "MIT" {
		t.Errorf("licences %+v", found.Licenses)
	}
	entries, err := os.ReadDir(filepath.Join(target, "licenses", "example.com", "b@v2.0.0+incompatible"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, []string{"License.txt", "NOTICE"}) {
		t.Errorf("the image has %v", names)
	}
	mine, err := describeModule(&debug.Module{Path: "admission-gateway.io/engines", Version: "v0.0.0"}, "9.8.7", from, target)
	if err != nil || mine.Version != "9.8.7" || mine.Licenses[0].License.ID != "Apache-2.0" {
		t.Errorf("a module of this repository is %+v, %v", mine, err)
	}
}

func TestAModuleThatTheListDoesNotHaveIsNamed(t *testing.T) {
	info := &debug.BuildInfo{
		Path: "example.com/worker", Main: debug.Module{Path: "admission-gateway.io/x"}, GoVersion: "go1.26.0",
		Deps: []*debug.Module{{Path: "example.com/missing", Version: "v1.0.0"}},
	}
	packages := []listed{{ImportPath: "example.com/worker", Module: &module{Path: "admission-gateway.io/x"}}}
	_, err := describe(info, packages, "9.8.7", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "example.com/missing") {
		t.Errorf("got %v; want an error that names the module", err)
	}
}

func TestAFileThatIsNoProgramIsNamed(t *testing.T) {
	err := run("main_test.go", t.TempDir(), "9.8.7")
	if err == nil || !strings.HasPrefix(err.Error(), "cannot read the modules of main_test.go: ") {
		t.Errorf("got %v", err)
	}
}
