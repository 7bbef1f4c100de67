// A policy for WASI that does what its settings say, for the tests of the worker.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unsafe"
)

//go:wasmimport host call
func hostCall(
	binding unsafe.Pointer, bindingLength uint32, namespace unsafe.Pointer, namespaceLength uint32,
	operation unsafe.Pointer, operationLength uint32, payload unsafe.Pointer, payloadLength uint32,
) uint32

// call asks the host; its answer is read from the standard input.
func call(namespace, operation string, payload any) (string, bool) {
	text, _ := json.Marshal(payload)
	binding := []byte("kubewarden")
	space, name := []byte(namespace), []byte(operation)
	status := hostCall(
		unsafe.Pointer(&binding[0]), uint32(len(binding)), unsafe.Pointer(&space[0]), uint32(len(space)),
		unsafe.Pointer(&name[0]), uint32(len(name)), unsafe.Pointer(&text[0]), uint32(len(text)),
	)
	answer, _ := io.ReadAll(os.Stdin)
	return string(answer), status == 0
}

type settings struct {
	Do      string
	Payload any
}

func main() {
	input, _ := io.ReadAll(os.Stdin)
	if os.Args[1] == "validate-settings" {
		var given settings
		if err := json.Unmarshal(input, &given); err != nil || given.Do == "" {
			answer(map[string]any{"valid": false, "message": "do is required"})
			return
		}
		answer(map[string]any{"valid": true})
		return
	}
	var given struct {
		Request  map[string]any
		Settings settings
	}
	if err := json.Unmarshal(input, &given); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	switch given.Settings.Do {
	case "accept":
		answer(map[string]any{"accepted": true, "warnings": []string{"careful"}})
	case "reject":
		answer(map[string]any{"accepted": false, "message": fmt.Sprint("not ", given.Request["name"]), "code": 422})
	case "mutate":
		object, _ := given.Request["object"].(map[string]any)
		object["seen"] = true
		answer(map[string]any{"accepted": true, "mutated_object": object})
	case "exit":
		fmt.Fprint(os.Stderr, "broken")
		os.Exit(3)
	case "nothing":
	default:
		var namespace, operation string
		fmt.Sscanf(given.Settings.Do, "%s %s", &namespace, &operation)
		text, succeeded := call(namespace, operation, given.Settings.Payload)
		answer(map[string]any{"accepted": succeeded, "message": text, "warnings": []string{text}})
	}
}

func answer(value any) {
	_ = json.NewEncoder(os.Stdout).Encode(value)
}
