package m4

apiVersion := "admission.k8s.io/v1"

kind := "AdmissionReview"

response := {
	"uid": input.request.uid,
	"allowed": true,
	"patchType": "JSONPatch",
	"patch": base64.encode(json.marshal(array.concat(array.concat(pulls, requests), array.concat(label, toleration)))),
}

pod := input.request.object

pulls := [operation |
	some index, container in pod.spec.containers
	object.get(container, "imagePullPolicy", "") != "Always"
	operation := {"op": "add", "path": sprintf("/spec/containers/%d/imagePullPolicy", [index]), "value": "Always"}
]

requests := array.concat(
	[operation |
		some index, container in pod.spec.containers
		not container.resources
		operation := {"op": "add", "path": sprintf("/spec/containers/%d/resources", [index]), "value": {}}
	],
	[operation |
		some index, container in pod.spec.containers
		not container.resources.requests
		operation := {
			"op": "add",
			"path": sprintf("/spec/containers/%d/resources/requests", [index]),
			"value": {"cpu": "100m", "memory": "128Mi"},
		}
	],
)

label := [{"op": "add", "path": "/metadata/labels/managed", "value": "true"}] if {
	pod.metadata.labels
} else := [{"op": "add", "path": "/metadata/labels", "value": {"managed": "true"}}]

wanted := {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}

toleration := [{"op": "add", "path": "/spec/tolerations", "value": [wanted]}] if {
	not pod.spec.tolerations
} else := [] if {
	wanted in pod.spec.tolerations
} else := [{"op": "add", "path": "/spec/tolerations/-", "value": wanted}]
