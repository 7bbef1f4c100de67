package l10

apiVersion := "admission.k8s.io/v1"

kind := "AdmissionReview"

response := denied if {
	object.get(labels, "refused-by", "") in names
} else := {
	"uid": input.request.uid,
	"allowed": true,
	"patchType": "JSONPatch",
	"patch": base64.encode(json.marshal(array.concat(parent, changes))),
}

denied := {
	"uid": input.request.uid,
	"allowed": false,
	"status": {"code": 403, "message": sprintf("label refused-by names %s", [labels["refused-by"]])},
}

names := {sprintf("label%d", [n]) | some n in numbers.range(0, 9)}

labels := object.get(input.request.object.metadata, "labels", {})

parent := [] if {
	input.request.object.metadata.labels
} else := [{"op": "add", "path": "/metadata/labels", "value": {}}]

changes := [{"op": "add", "path": sprintf("/metadata/labels/%s", [name]), "value": "applied"} |
	some name in names
	object.get(labels, name, "") != "applied"
]
