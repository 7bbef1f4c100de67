// Command sbom writes what a worker's binary is made of, for its image: sbom.cdx.json, and the licence of each module in
// licenses/MODULE@VERSION/. Run it in the folder of the worker, with the environment of its build:
//
//	go run admission-gateway.io/engines/sbom -version VERSION BINARY FOLDER
//
// The modules are those that the linker wrote into the binary, and the licences are in the module cache. The same binary
// and SOURCE_DATE_EPOCH give the same files. A module without a licence that is known gets a line on standard error.
//
// Source: CycloneDX specification 1.6; package-url, type golang; SPDX License List.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// own is the beginning of the paths of this repository's modules, and ownLicence what they are under.
const own, ownLicence = "admission-gateway.io/", "Apache-2.0"

var licenceFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)([-.].*)?$`)

// A component is a module with where it lies.
type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Licenses []license `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type document struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

// A module is one of `go list`. That of a package of the standard library is nil.
type module struct {
	Path, Version, Dir string
	Replace            *module
}

type listed struct {
	ImportPath string
	Imports    []string
	Module     *module
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("sbom: ")
	version := flag.String("version", "", "`version` of this repository's modules")
	flag.Parse()
	if flag.NArg() != 2 || *version == "" {
		log.Fatal("want -version VERSION BINARY FOLDER")
	}
	if err := run(flag.Arg(0), flag.Arg(1), *version); err != nil {
		log.Fatal(err)
	}
}

func run(binary, folder, version string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("cannot read the modules of %s: %w", binary, err)
	}
	packages, err := list(info.Path)
	if err != nil {
		return err
	}
	made, err := time.Now(), error(nil)
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		var seconds int64
		if seconds, err = strconv.ParseInt(epoch, 10, 64); err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH is %q; want seconds", epoch)
		}
		made = time.Unix(seconds, 0)
	}
	found, err := describe(info, packages, version, folder)
	if err != nil {
		return err
	}
	found.Metadata.Timestamp = made.UTC().Format(time.RFC3339)
	content, err := json.Marshal(found)
	if err != nil {
		return err
	}
	found.Serial = uuid(content)
	if content, err = json.MarshalIndent(found, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "sbom.cdx.json"), append(content, '\n'), 0o644)
}

// list returns the package at path, and all that it needs.
func list(path string) ([]listed, error) {
	command := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Module", path)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -deps %s: %w", path, err)
	}
	var found []listed
	decoder := json.NewDecoder(strings.NewReader(string(output)))
	for {
		var one listed
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list -deps %s: %w", path, err)
		}
		found = append(found, one)
	}
}

// describe returns the document of info without time and serial number, and copies the licences to folder.
func describe(info *debug.BuildInfo, packages []listed, version, folder string) (*document, error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	// By path, that of the standard library is stdlib, as in the databases of vulnerabilities.
	folders := map[string]string{"stdlib": strings.TrimSpace(string(goroot))}
	moduleOf := map[string]string{}
	for _, each := range packages {
		moduleOf[each.ImportPath] = "stdlib"
		if found := each.Module; found != nil {
			moduleOf[each.ImportPath], folders[found.Path] = found.Path, found.Dir
		}
	}
	components := map[string]component{}
	linked := append([]*debug.Module{&info.Main, {Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	for _, each := range linked {
		from, exists := folders[each.Path]
		if !exists {
			return nil, fmt.Errorf("the binary has the module %s, which `go list -deps %s` has not: run sbom with the environment of the build", each.Path, info.Path)
		}
		one, err := describeModule(each, version, from, folder)
		if err != nil {
			return nil, err
		}
		components[each.Path] = one
	}
	root := components[info.Main.Path]
	root.Type = "application"
	delete(components, info.Main.Path)
	found := &document{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{Component: root}}
	needs := map[string][]string{root.Ref: {}}
	for _, one := range components {
		found.Components = append(found.Components, one)
		needs[one.Ref] = []string{}
	}
	components[info.Main.Path] = root
	for _, each := range packages {
		user, used := components[moduleOf[each.ImportPath]]
		for _, path := range each.Imports {
			if needed := components[moduleOf[path]].Ref; used && needed != "" && needed != user.Ref && !slices.Contains(needs[user.Ref], needed) {
				needs[user.Ref] = append(needs[user.Ref], needed)
			}
		}
	}
	for ref, needed := range needs {
		slices.Sort(needed)
		found.Dependencies = append(found.Dependencies, dependency{ref, needed})
	}
	slices.SortFunc(found.Components, func(a, b component) int { return strings.Compare(a.Ref, b.Ref) })
	slices.SortFunc(found.Dependencies, func(a, b dependency) int { return strings.Compare(a.Ref, b.Ref) })
	return found, nil
}

// describeModule returns the component of a module in the folder from. A module that replaces another one has its own name.
func describeModule(each *debug.Module, version, from, folder string) (component, error) {
	name, has, licenses := each.Path, each.Version, []string{ownLicence}
	if strings.HasPrefix(name, own) {
		has = version
	} else {
		if each.Replace != nil {
			name, has = each.Replace.Path, each.Replace.Version
		}
		var err error
		if licenses, err = copyLicences(from, filepath.Join(folder, "licenses", name+"@"+has)); err != nil {
			return component{}, fmt.Errorf("module %s %s: %w", name, has, err)
		}
		if len(licenses) == 0 {
			log.Printf("module %s %s has no licence that is known here: see licences.go, or ask its authors", name, has)
		}
	}
	purl := "pkg:golang/" + name + "@" + strings.ReplaceAll(has, "+", "%2B")
	found := component{Type: "library", Ref: purl, Name: name, Version: has, PURL: purl}
	for _, id := range licenses {
		var one license
		one.License.ID = id
		found.Licenses = append(found.Licenses, one)
	}
	return found, nil
}

// copyLicences copies the licences and notices in the module in from to the folder to, and returns their SPDX identifiers.
func copyLicences(from, to string) ([]string, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !licenceFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return nil, err
		}
		ids = append(ids, identify(string(text))...)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(to, entry.Name()), text, 0o644); err != nil {
			return nil, err
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// uuid returns the URN of a UUID of version 8 that is made of content. Source: RFC 9562.
func uuid(content []byte) string {
	sum := sha256.Sum256(content)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
